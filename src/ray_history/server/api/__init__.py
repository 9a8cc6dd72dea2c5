"""The routes of Ray's dashboard and state API."""
