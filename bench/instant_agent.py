"""An agent that answers each message at once: chunk, chunk, done. It imports nothing slow."""

import os

ANSWER = (
    b'{"type":"chunk","text":"The quick brown fox jumps "}\n'
    b'{"type":"chunk","text":"over the lazy dog, and rests."}\n'
    b'{"type":"done","metadata":{"turns":1}}\n'
)
MESSAGE = b'"type":"message"'


def main() -> None:
    rest = b""
    while chunk := os.read(0, 65536):
        *lines, rest = (rest + chunk).split(b"\n")
        answers = ANSWER * sum(MESSAGE in line for line in lines)
        while answers:
            answers = answers[os.write(1, answers) :]


if __name__ == "__main__":
    main()
