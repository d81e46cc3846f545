"""Scripts that a bisection copies beside its findings; they need TVM and NumPy, not tvmscope."""
