echo "evaluated"
