"""Schedule rules: `cpu/` and `cuda/`, and how they are offered each kernel."""
