"""Scripts of shells that complete the command line. They are made from its parser.

words.py  what there is to complete
bash.py   bash; zsh reads the same script
fish.py   fish
"""

from jax_engine.commands.shells.bash import bash_script, zsh_script
from jax_engine.commands.shells.fish import fish_script

SHELLS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
