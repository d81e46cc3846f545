"""What is kept beside a prepared model: operators' names, large weights, sensitivity, sizes."""
