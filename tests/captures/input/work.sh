# Forks with and without exec, pipelines, command substitution, a background job.
total=0
for word in alpha beta gamma; do
    upper=$(echo "$word" | tr a-z A-Z)
    length=$(printf %s "$upper" | wc -c)
    total=$((total + length))
done
seq 1 300 | sort -n -r | head -n 3 &
wait
(total=$((total + 1)); echo "$total")
