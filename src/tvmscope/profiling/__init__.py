"""Where time goes, and what the machine could do at best."""
