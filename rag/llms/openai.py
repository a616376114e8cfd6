"""placeholder"""
class OpenAILLM:
    """Placeholder."""

    def __init__(self, endpoint):
        self.name = endpoint.model
