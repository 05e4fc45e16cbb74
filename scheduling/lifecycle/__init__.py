"""What happens to jobs, roles, tasks, attempts and queues, and when: pure rules, no clock."""
