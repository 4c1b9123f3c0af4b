"""What every room may use: devices, keys, plain values, atomic files, memory, intervals."""
