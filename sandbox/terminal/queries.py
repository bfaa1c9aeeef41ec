"""Which input is a terminal's own reply rather than a person's typing; and which output makes a terminal reply. Pure.

Every viewer of a program has a terminal, and each of them replies to the program's questions. The program must get one
reply. So input that consists of nothing but replies is told apart from typing, and taken from one viewer only.

Replies are: reports of device attributes (DA1, DA2, DA3), of status and of the cursor (DSR, CPR), of modes
(DECRPM), of terminal parameters, of keyboard flags (`CSI ? n u`), of the window (`CSI .. t`), focus in and out, and
every DCS, OSC and APC string: colours, the clipboard, settings, capabilities, versions. No key sends those.

One form is both. `CSI 1 ; m R` with m from 2 to 16 is F3 with a modifier, and a cursor in the first row. It counts as
the report: at worst a viewer who has not typed yet presses Shift-F3 in vain. The other way, a stray report would be
typed into a shell. Keys, mouse events and pastes, bracketed or not, are typing, and so is a message that has both.
"""

import re

_ANSWER = re.compile(
    rb"""(?:
        \x1b\[ (?:
            [?>=] [\d;:]* c                 # DA1, DA2, DA3 of some
          | \?? \d+ (?:;\d+)* n             # DSR
          | \?? \d+ ; \d+ (?:;\d+)? R       # CPR, DECXCPR
          | \?? \d+ ; \d+ \$ y              # DECRPM
          | \d+ (?:;\d+)* [tx]              # window reports, DECREPTPARM
          | \? \d* u                        # keyboard flags
          | > \d+ (?:;\d+)* m               # modifyOtherKeys
          | [IO]                            # focus
        )
      | \x1b [P\]_] [^\x07\x1b]*+ (?: \x07 | \x1b\\ )
    )++""",
    re.VERBOSE,
)

_QUESTION = re.compile(
    rb"""
        \x05                                # ENQ
      | \x1b Z
      | \x1b\[ (?:
            [>=]? [\d;]* c
          | \?? [\d;]* n
          | \?? [\d;]* \$ p                 # DECRQM
          | [\d;]* [tx]
          | \? u
          | > [\d;]* q                      # XTVERSION
          | \? [\d;]* m
        )
      | \x1b P (?: [\d;]* \$ | \+ ) q       # DECRQSS, XTGETTCAP
      | \x1b \] [\d;]{1,64} [^\x07\x1b]{0,256} \?   # colours and the clipboard
      | \x1b _ G                            # graphics
    """,
    re.VERBOSE,
)


def is_answer(payload: bytes) -> bool:
    """Whether `payload` consists only of a terminal's own replies."""
    return payload.startswith(b"\x1b") and _ANSWER.fullmatch(payload) is not None


def has_question(output: bytes) -> bool:
    """Whether a terminal that shows `output` may reply by itself. Rather yes than no; a sequence cut off at an end of
    `output` is ignored."""
    return _QUESTION.search(output) is not None
