"""The files beside a prepared model: operators' names, sensitivity to rounding, sizes."""
