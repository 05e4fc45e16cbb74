"""A Django database backend for when there is no database: says how to get one."""
