"""How dates are written where Django writes them unlike native writers, one package a language."""
