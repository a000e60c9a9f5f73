"""Targets against eager: accuracy, compile time, run time, and what is known not to work."""
