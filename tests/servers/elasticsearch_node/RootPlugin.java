import java.util.Collection;
import java.util.List;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.elasticsearch.Build;
import org.elasticsearch.client.internal.node.NodeClient;
import org.elasticsearch.cluster.node.DiscoveryNodes;
import org.elasticsearch.features.NodeFeature;
import org.elasticsearch.plugins.ActionPlugin;
import org.elasticsearch.plugins.Plugin;
import org.elasticsearch.rest.RestChannel;
import org.elasticsearch.rest.RestHandler;
import org.elasticsearch.rest.RestRequest;
import org.elasticsearch.rest.RestResponse;
import org.elasticsearch.rest.RestStatus;

/** Answers GET and HEAD /, which clients ask first: the module that does it is not published as a jar. */
public class RootPlugin extends Plugin implements ActionPlugin, RestHandler {
    @Override
    public Collection<RestHandler> getRestHandlers(
        RestHandlersServices services, Supplier<DiscoveryNodes> nodes, Predicate<NodeFeature> features) {
        return List.of(this);
    }

    @Override
    public List<Route> routes() {
        return List.of(new Route(RestRequest.Method.GET, "/"), new Route(RestRequest.Method.HEAD, "/"));
    }

    @Override
    public void handleRequest(RestRequest request, RestChannel channel, NodeClient client) {
        Build build = Build.current();
        String answer = """
            {"name": "node", "cluster_name": "test", "tagline": "You Know, for Search",
             "version": {"number": "%s", "build_flavor": "default", "build_hash": "%s"}}
            """;
        channel.sendResponse(
            new RestResponse(RestStatus.OK, "application/json", answer.formatted(build.version(), build.hash())));
    }
}
