"""What every request passes through: limits, headers, compression, query parameters, responses."""
