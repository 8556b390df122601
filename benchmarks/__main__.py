"""`python -m benchmarks` lists what can be measured; `python -m benchmarks NAME` measures it."""

from benchmarks.registry import main

if __name__ == "__main__":
    main()
