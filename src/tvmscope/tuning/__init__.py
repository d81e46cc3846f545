"""Searches for faster kernels, keeps what was measured, and proves what it uses."""
