"""The gates to the engines that run models."""
