"""Files of requests, for `generate`.

lines.py    a line of the input as a request, or what is wrong with it
results.py  a line of the output
output.py   the output file: what it has already, and how it grows
app.py      asks the server's app, without a port
running.py  answers the requests, so many at a time
"""
