"""python -m scorelake"""

from scorelake.cli import main

main()
