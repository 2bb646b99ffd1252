-- The health of a SinkPipeline for Argo CD. docs/gitops.md says where it goes.
local status = obj.status
if status == nil or status.conditions == nil or status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "the operator has not looked at it yet" }
end
local conditions = {}
for _, condition in ipairs(status.conditions) do
  conditions[condition.type] = condition
end
local ready, stalled = conditions["Ready"], conditions["Stalled"]
if stalled ~= nil and stalled.status == "True" then
  return { status = "Degraded", message = stalled.reason .. ": " .. stalled.message }
end
if status.phase == "Suspended" then
  return { status = "Suspended", message = "spec.suspend is true" }
end
if ready ~= nil and ready.status == "True" then
  return { status = "Healthy", message = "all sinks deliver" }
end
if ready == nil then
  return { status = "Progressing", message = "it is not known yet" }
end
return { status = "Progressing", message = ready.reason .. ": " .. ready.message }
