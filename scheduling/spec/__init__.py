"""What a user asks for: one validated `JobSpec` from form, YAML or JSON, and the rules over it."""
