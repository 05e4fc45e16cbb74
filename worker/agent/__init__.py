"""The node agent: runs the tasks that the control plane gives to one machine."""
