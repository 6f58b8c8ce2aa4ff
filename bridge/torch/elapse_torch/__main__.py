"""elapse-torch COMMAND: profile, links, run, steps."""
import sys

from .errors import BridgeError

COMMANDS = {
    "profile": "measure a model item by item: a model and a profile for `elapse`",
    "links": "measure messages and all-reduces between ranks (under torchrun)",
    "run": "run a plan of `elapse plan -o` (under torchrun)",
    "steps": "step times of a log, for `elapse calibrate`",
}


def usage():
    lines = ["usage: elapse-torch COMMAND [OPTIONS]", ""]
    lines += [f"  {name:<9} {about}" for name, about in COMMANDS.items()]
    return "\n".join(lines + ["", "`elapse-torch COMMAND --help` lists the options; docs/torch.md"])


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    if argv and argv[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    try:
        if not argv or argv[0] not in COMMANDS:
            raise BridgeError(f"unknown command '{argv[0]}', one of: " + " ".join(COMMANDS)
                              if argv else "a command is missing, one of: " + " ".join(COMMANDS))
        command = __import__(f"elapse_torch.cmd_{argv[0]}", fromlist=["main"])
        return command.main(argv[1:]) or 0
    except BridgeError as error:
        print(f"elapse-torch: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
