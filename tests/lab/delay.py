#!/usr/bin/env python3
"""Connects standard input and output with HOST PORT, each chunk MILLISECONDS later than it came."""
import os
import queue
import socket
import sys
import threading
import time

delay_s = int(sys.argv[1]) / 1000
link = socket.create_connection((sys.argv[2], int(sys.argv[3])))


def write_all(write, chunk):
    while chunk:
        chunk = chunk[write(chunk):]


def relay(read, write, end):
    chunks = queue.Queue()

    def deliver():
        while True:
            due, chunk = chunks.get()
            time.sleep(max(0, due - time.monotonic()))
            if not chunk:
                return end()
            write_all(write, chunk)

    threading.Thread(target=deliver).start()
    while True:
        chunk = read(1 << 16)
        chunks.put((time.monotonic() + delay_s, chunk))
        if not chunk:
            return


def end_of_input():
    link.shutdown(socket.SHUT_WR)


there = threading.Thread(target=relay, args=(lambda n: os.read(0, n), link.send, end_of_input))
there.start()
relay(link.recv, lambda chunk: os.write(1, chunk), lambda: os._exit(0))
there.join()
