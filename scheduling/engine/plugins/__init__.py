"""The plugins, one module each; none knows another."""
