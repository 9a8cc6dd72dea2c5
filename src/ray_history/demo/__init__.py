"""A real Ray cluster that lives, works, dies, and is looked at afterwards: on one machine, in about a minute."""
