"""How plans look in a terminal: what ``brim plan`` shows beside the plan itself."""
