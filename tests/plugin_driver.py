"""Runs a command of the project after a file that registers something.

python tests/plugin_driver.py PLUGIN.py COMMAND.py [FLAGS]
"""

import runpy
import sys

if __name__ == "__main__":
    _, plugin, *sys.argv = sys.argv
    runpy.run_path(plugin, run_name="plugin")
    runpy.run_path(sys.argv[0], run_name="__main__")
