#!/bin/bash
# Two rewards by name: the one that counts, and one to look at.
lines=$(wc -l < /app/sorted.txt 2>/dev/null || echo 0)
right=0
if printf 'apple\nfig\npear\n' | cmp -s - /app/sorted.txt; then right=1; fi
echo "{\"reward\": $right, \"lines\": $lines}" > /logs/verifier/reward.json
