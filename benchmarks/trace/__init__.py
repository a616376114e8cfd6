"""What one question enters of the product's own code, through all its processes."""
