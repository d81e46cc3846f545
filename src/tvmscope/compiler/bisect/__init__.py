"""Examines a model pass by pass, for a bisection, and writes its reproducers."""
