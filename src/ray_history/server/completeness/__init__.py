"""How complete the history of a session is."""
