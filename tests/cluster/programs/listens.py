"""`listens.py PORT` accepts as gRPC does and says whose connections came; two end it."""

import select
import socket
import sys

listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
listener.setblocking(False)
print("listens", flush=True)
for _ in range(2):
    while True:
        select.select([listener], [], [])
        try:
            connection, address = listener.accept()
        except BlockingIOError:
            continue
        break
    print(
        "got", address[0], address[1] == connection.getpeername()[1], connection.recv(5), flush=True
    )
    connection.sendall(b"hello")
