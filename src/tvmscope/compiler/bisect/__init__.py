"""Looks into a model pass by pass: what a bisection asks, and the reproducers it writes."""
