"""Owns: `torch-fl completion`: scripts that complete this command, made from its own parsers.

They know commands, options and their fixed values, and need neither Python nor torch when a key is
pressed. A generator of our own because it is smaller than what a dependency would need around it.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True)
class Option:
    """An option, or a positional argument that has fixed values (then `names` is empty)."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    values: tuple[str, ...]


@dataclass(frozen=True)
class Words:
    """A command and what can follow it."""

    name: str
    summary: str
    options: tuple[Option, ...]

    @property
    def flags(self) -> list[str]:
        """All names of options."""
        return [name for option in self.options for name in option.names]

    @property
    def values(self) -> list[str]:
        """What its positional argument can be."""
        return [value for option in self.options if not option.names for value in option.values]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument of `torch-fl completion`."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that is to read the script")


def run(arguments: argparse.Namespace) -> int:
    """Print the script; always 0."""
    print(script(arguments.shell), end="")
    return 0


def script(shell: str) -> str:
    """The script for one of SHELLS."""
    makers = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    return makers[shell](commands())


def commands() -> list[Words]:
    """All commands, as the parser has them."""
    from torch_fl.cli.main import COMMANDS

    found = []
    for command in COMMANDS:
        parser = argparse.ArgumentParser()
        command.load().add_arguments(parser)
        # argparse has no public way to ask for what was added.
        options = tuple(_option(action) for action in parser._actions)
        summary = command.summary.replace("'", "")
        found.append(Words(command.name, summary, options))
    return found


def _option(action: argparse.Action) -> Option:
    text = (action.help or "").replace("'", "").replace("[", "(").replace("]", ")")
    values = tuple(map(str, action.choices or ()))
    return Option(tuple(action.option_strings), text, action.nargs != 0, values)


def _bash(found: list[Words]) -> str:
    names = [words.name for words in found]
    values = [
        f"        {'|'.join(f'{words.name}:{name}' for name in option.names)}) "
        f'words="{" ".join(option.values)}" options= ;;'
        for words in found
        for option in words.options
        if option.names and option.takes_value
    ]
    after = [
        f'        {words.name}) words="{" ".join(words.values)}" '
        f'options="{" ".join(words.flags)}" ;;'
        for words in found
    ]
    return "\n".join(
        [
            "# bash completion of torch-fl, for ~/.bashrc:",
            '#   eval "$(torch-fl completion bash)"',
            "_torch_fl() {",
            "    local current previous word command= words= options=",
            '    current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"',
            '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
            f"        case $word in {'|'.join(names)}) command=$word; break ;; esac",
            "    done",
            "    case $command in",
            f'        "") words="{" ".join(names)}" options="--help --version" ;;',
            *after,
            "    esac",
            "    case $command:$previous in",
            *values,
            "    esac",
            '    [[ $current == -* ]] && words="$options"',
            '    COMPREPLY=($(compgen -W "$words" -- "$current"))',
            "}",
            "complete -F _torch_fl torch-fl",
            "",
        ]
    )


def _zsh(found: list[Words]) -> str:
    lines = [
        "#compdef torch-fl",
        "# zsh completion of torch-fl, for ~/.zshrc after compinit:",
        '#   eval "$(torch-fl completion zsh)"',
        "_torch_fl() {",
        "    local -a commands",
        "    commands=(",
        *(f"        '{words.name}:{words.summary}'".replace(": ", " ") for words in found),
        "    )",
        "    if (( CURRENT == 2 )); then",
        "        _describe command commands",
        "        return",
        "    fi",
        "    local command=$words[2]",
        "    shift words; (( CURRENT-- ))",
        "    case $command in",
    ]
    for words in found:
        specs = [spec for option in words.options for spec in _zsh_specs(option)]
        lines.append(f"        {words.name}) _arguments {' '.join(specs)} ;;")
    lines += ["    esac", "}", "compdef _torch_fl torch-fl", ""]
    return "\n".join(lines)


def _zsh_specs(option: Option) -> list[str]:
    text = option.help.replace(":", "\\:")
    values = f"({' '.join(option.values)})" if option.values else ""
    if not option.names:
        return [f"'::{text}:{values}'"]
    value = f":value:{values}" if option.takes_value else ""
    return [f"'{name}[{text}]{value}'" for name in option.names]


def _fish(found: list[Words]) -> str:
    lines = [
        "# fish completion of torch-fl, for ~/.config/fish/config.fish:",
        "#   torch-fl completion fish | source",
        "complete -c torch-fl -f",
        "complete -c torch-fl -n __fish_use_subcommand -l help -d 'show the help'",
        "complete -c torch-fl -n __fish_use_subcommand -l version -d 'show the version'",
    ]
    for words in found:
        begin = f"complete -c torch-fl -n __fish_use_subcommand -a {words.name}"
        lines.append(f"{begin} -d '{words.summary}'")
        seen = f"complete -c torch-fl -n '__fish_seen_subcommand_from {words.name}'"
        for option in words.options:
            flags = "".join(
                f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}"
                for name in option.names
            )
            values = f" -a '{' '.join(option.values)}'" if option.values else ""
            needs = " -x" if option.names and option.takes_value else ""
            if flags or values:
                lines.append(f"{seen}{flags}{needs}{values} -d '{option.help}'")
    return "\n".join([*lines, ""])
