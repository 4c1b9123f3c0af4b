"""What the experiments on images share."""
