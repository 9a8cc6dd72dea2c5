"""The demo: a real Ray cluster runs, dies, and is shown afterwards, on one machine in about a minute."""
