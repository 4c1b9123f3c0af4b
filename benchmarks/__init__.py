"""Speed of jaxsens against PyTorch, side by side in one run: `python -m benchmarks.run`."""
