"""The parts of `python -m jaxsens.measure`: its config, models, weights, data and findings."""
