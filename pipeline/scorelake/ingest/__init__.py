"""A way in: the logs of other tools become attempts in a lake. One adapter per format in formats/, one contract."""
