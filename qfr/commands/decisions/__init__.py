"""Commands that decide: `compare`, `pick`, `power`, `screen`; `sides` is what they share."""
