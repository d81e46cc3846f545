"""Measures what each optimisation is worth, by switching it off and by running it alone."""
