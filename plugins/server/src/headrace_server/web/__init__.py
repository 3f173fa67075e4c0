"""The web page: pages made by the server, which read well without JavaScript, and a little JavaScript that keeps them live.

Pages only read. Everything that changes something is a request of the REST API, with the session's cookie and its CSRF token.
"""
