"""The console: what happens in a cluster, live, in a browser.

It is a client like any other. All that it shows and does goes through the SDK, with the token of
the viewer, so that rights and the audit log are those of the servers.
"""
