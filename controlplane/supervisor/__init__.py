"""Start, watch and end the processes of one machine; drive the embedded PostgreSQL and Redis.

Nothing here imports Django, so that settings and tests may use it before Django is set up.
"""
