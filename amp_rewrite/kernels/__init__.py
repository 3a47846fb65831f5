"""What runtimes have: tables of kernels, of fused groups, of what kernels add up in."""
