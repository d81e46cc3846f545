"""What is kept beside a prepared model: its operators' names, its sensitivity to rounding."""
