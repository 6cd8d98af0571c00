"""Analytic costs of models and runs: parameters, FLOPs, disk space and device-hours."""
