"""Facts about runtimes: tables of kernels, of fused groups, of what kernels add up in."""
