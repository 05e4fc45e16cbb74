"""The rules over jobs, queues and nodes that need the database: each write is one transaction."""
